"""`weft tune`: chooses alpha of the balancer `work` from replays of the gateways' journals."""
