"""A pytest plugin for `make fuzz`: the property tests with many more examples."""

from hypothesis import settings

settings.register_profile("fuzz", deadline=None, max_examples=5000)
