"""What masks of a user's class are made from: strategies of the arguments of its constructor, and the calls themselves.

`annotations` derives strategies from the signature, from `names` and from the sizes in `settings`, with arrays of
`tokens`; `given` takes those of the user instead. `source` calls the constructor, `literals` writes the call as Python.
"""
