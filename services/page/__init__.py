"""What the web pages of services share: files without a build step, and trajectories to look at.

`site` serves a page's files beside those of `static/` here; `traces` keeps what rollouts said, and
`trajectories` are the routes that show it.
"""
