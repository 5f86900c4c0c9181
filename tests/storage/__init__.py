"""Tests of the storage layer: what is promised of bytes, locks, crashes and disks."""
