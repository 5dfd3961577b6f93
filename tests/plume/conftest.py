from hypothesis import settings

# The first example may compile a kernel, and machines that run tests are busy: how long one takes says nothing.
settings.register_profile("without deadline", deadline=None)
settings.load_profile("without deadline")
