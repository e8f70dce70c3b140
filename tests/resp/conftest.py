"""The fixture of the tests that ask a real Redis."""

from tests.conformance.redis_oracle import redis_port

__all__ = ["redis_port"]
