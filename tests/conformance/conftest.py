"""The fixtures of the conformance tests."""

from tests.conformance.redis_oracle import pair, pair2, redis_peer, redis_port
from tests.conformance.socket_pair import both, link, protocol, tidelog_port

__all__ = ["both", "link", "pair", "pair2", "protocol", "redis_peer", "redis_port", "tidelog_port"]
