"""Deployment: the supervisor behind `weft up`, the installer and reference pages."""
