"""One version of Millpond compared with another, in one run."""
