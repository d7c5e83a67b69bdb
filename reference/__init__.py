"""The executable reference: plain NumPy, one function per clause, clarity over speed."""
