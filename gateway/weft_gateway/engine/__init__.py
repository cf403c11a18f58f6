"""Replicas: the streaming client, framing, lowering of bodies, registry and health."""
