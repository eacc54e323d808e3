"""Notices about alerts to people who do not look at the page: targets, what is due, delivery, `regimescope notify`."""
