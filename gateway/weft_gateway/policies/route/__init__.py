"""Where a call goes: filters, scorers, a picker."""
