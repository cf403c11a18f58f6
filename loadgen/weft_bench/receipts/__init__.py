"""What keeping receipts takes: `weft bench receipts`."""
