"""Code that the web pages of all services share; its static files need no build step.

`site` serves a page's files together with the shared ones in `static/`. `trajectories` has the routes that
show a run's trajectories, and `evaluation` writes the report of `kbqa eval`.
"""
