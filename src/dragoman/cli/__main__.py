"""`python -m dragoman.cli`."""

from dragoman.cli.main import run

run()
