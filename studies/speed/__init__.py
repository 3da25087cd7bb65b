"""Speeds: `bench` against named peers (`peers/`), samplers by effective draws per second."""
