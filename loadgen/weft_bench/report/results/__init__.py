"""The results page: one short page with pictures, and the long tables on pages behind it."""
