VERBS = ()
