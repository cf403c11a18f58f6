"""Replicas: the streaming client, framing, request bodies, registry and health."""
