"""What holds for all tests."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# A busy machine must not fail a property: no deadline per example, and slow generation is no failure.
settings.register_profile("rmqio", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("rmqio")
