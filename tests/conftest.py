"""For all tests: hypothesis without its time limit per example, which a busy machine breaks for no fault of ours."""

from hypothesis import settings

settings.register_profile("house", deadline=None)
settings.load_profile("house")
