# The first example may compile a kernel, and machines that run tests are busy: how long one takes says nothing.
