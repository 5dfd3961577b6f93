"""One thread for torch and BLAS: our networks are too small for a second one."""

import os

import threadpoolctl

VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def use_one_thread() -> None:
    """Limit torch and BLAS to one thread, here and in processes that we start, unless the user has chosen a number.

    Libraries read the variables when they are loaded. Torch is loaded later; NumPy already is, and needs a call.
    Worlds are not affected: they are stepped by threads of our own.
    """
    if any(name in os.environ for name in VARIABLES):
        return
    os.environ.update(dict.fromkeys(VARIABLES, "1"))
    threadpoolctl.threadpool_limits(1)
