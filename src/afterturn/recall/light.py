"""Light words: said in conversations about anything, so that sharing one says less than its rarity makes believe."""

from afterturn.base.terms import terms

_LIGHT_WORDS = """
    able absolutely actually ahead almost already alright always another anybody anymore anyone anything anyway
    apparently appreciate around ask asked asking asks away awesome awful back bad basically become believe best bet
    better big bit bring brought bye call came certainly chance check clear come comes coming completely cool
    correct correctly course curious currently day definitely different done double easy either else enjoy enough
    especially even ever every everybody everyone everything exactly excellent excited exciting fact fair fantastic
    far feel feeling feels felt finally find fine first found fun gave get gets getting give given gives giving glad
    go goes going gone gonna good got gotta great guess guy guys haha happen happened happening happens happy hard
    hear heard hello help helped helpful helping helps hey hi hmm hold honestly hope hoping idea important indeed
    instead interested interesting keep keeping kept kind kinda kinds knew know knowing known knows last late later
    least leave left less letting like liked likely little lol long longer look looked looking looks lot lots lovely
    made main make makes making many matter matters may maybe mean means meant might mind minute minutes moment much
    must near need needed needs never new next nice nope nothing obviously oh ok okay old one ones particular
    particularly perfect perfectly perhaps possible possibly pretty probably put quick quickly quite rather ready
    real really recently right said saw say saying says second see seeing seem seemed seems seen sense set several
    short shortly show showed shows simple simply since small someone something sometimes somewhere soon sorry sort
    sound sounds specific specifically start started starting stay still stop stuff suggest super suppose supposed
    sure surely surprised take taken takes taking talk talked talking tell telling tells thank thankful thanks thing
    things think thinking thinks though thought thoughts time times today together told tomorrow tonight took
    totally toward towards tried true truly try trying understand understood unfortunately upon use used uses using
    usual usually via wait waiting want wanted wanting wants way ways welcome well went whatever whether whole
    without wonder wonderful wondering word words worth wow wrong yeah yep yes yesterday yet yup
"""
LIGHT_TERMS = frozenset(terms(_LIGHT_WORDS))
