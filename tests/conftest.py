"""Settings of the test run."""

from hypothesis import settings

# `make fuzz` runs the property tests with the second one.
settings.register_profile("default", deadline=None)
settings.register_profile("fuzz", deadline=None, max_examples=5000)
settings.load_profile("default")
