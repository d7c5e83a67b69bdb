"""A report for people and machines: terminal, JUnit XML and HTML, all made from the canonical one."""
