"""Agents of well known frameworks, unmodified but for `base_url`, and one with all overlap.

Each runs by itself: `python -m weft.examples.overlap http://127.0.0.1:8080/v1`. Tools are
forced in the first turn, and turns and tokens are bounded, so that they also end with the demo
model, which talks at random. They need what they show: `pip install weft[test]` brings it all.
"""
