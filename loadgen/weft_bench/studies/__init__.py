"""The papers' experiments and ours: what is measured, how often, and what is made of it.

An experiment is a module with one `Experiment`, and a line in `registry`. Its cells are measured in
processes of their own, once for each content; its tables and plots are pure functions of what was
measured.
"""
