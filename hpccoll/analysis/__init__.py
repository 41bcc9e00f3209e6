"""Analysis: results for notebooks, as pandas frames and xarray datasets; the extra ``analysis`` installs both."""
