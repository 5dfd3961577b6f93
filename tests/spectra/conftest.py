import pytest
from threadpoolctl import threadpool_limits


@pytest.fixture(autouse=True, scope="module")
def one_blas_thread():
    """Threads of BLAS wait for each other in a busy loop: next to other processes, small matrices take 20 times as
    long on two of them as on one.
    """
    with threadpool_limits(1, user_api="blas"):
        yield
