"""What happens to records after they are written: they are merged, compacted and expired, and garbage is collected.

Each duty is a pure plan and a short function that performs it through the log's commit queue.
"""

from millpond.maintenance.retention_pause import resume
from millpond.maintenance.service import Maintenance, MaintenanceLimits

__all__ = ["Maintenance", "MaintenanceLimits", "resume"]
