"""The data types of profiles: timelines, host profiles, hardware counters."""
