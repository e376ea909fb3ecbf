"""Pipelines: jobs over topics. Each one plans from the catalog, works in tasks and commits on the driver."""
