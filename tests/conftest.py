import pytest


@pytest.fixture
def one_torch_thread():
    """Small networks are fastest on one thread, and other tests run on the other cores; always the same seed."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(before)
