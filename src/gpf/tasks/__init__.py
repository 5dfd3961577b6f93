"""The paper's tasks, one file each: everything that `gpf train` runs."""
