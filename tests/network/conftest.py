import pytest


@pytest.fixture(autouse=True)
def in_peace(one_torch_thread):
    """All tests of networks run on one thread and from one seed."""
