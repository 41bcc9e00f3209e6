"""What a rank runs: prepared cases, payload and check, synchronisation, the timing loop, attempts and recovery."""
