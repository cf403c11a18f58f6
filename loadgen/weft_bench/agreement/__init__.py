"""Virtual time beside emulated engines on the same programs: `weft bench fit --agreement`."""
