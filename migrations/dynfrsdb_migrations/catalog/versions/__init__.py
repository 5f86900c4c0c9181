"""One file per revision; Alembic finds them here."""
