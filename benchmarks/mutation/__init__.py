"""Parts of benchmarks/mutants.py: where sources can be mutated, which tests may notice, and running those."""
