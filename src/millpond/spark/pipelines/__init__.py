"""Pipelines: jobs over topics. Each plans from the catalog, works in tasks and commits once on the driver."""
