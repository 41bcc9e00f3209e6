"""The extensions that come with hpccoll, a package each, whose ``EXTENSION`` says what it brings.

They import the core of hpccoll. The core finds them by this directory, and names none of them;
``common/extensions.py`` is the door.
"""
