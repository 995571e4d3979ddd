"""A package, so that Ray's processes find these tests and not an installed package of that name, as verl has one."""
