"""Evidence from the logs of libraries about which algorithms ran: rows are named after what ran, not after requests."""
