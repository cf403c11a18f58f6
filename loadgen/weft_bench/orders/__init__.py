"""Orders and a balancer of rivals. They register through the entry points that `weft_engine.orders`
and `weft_gateway.policies.route.registry` read, as those of any other package do."""
