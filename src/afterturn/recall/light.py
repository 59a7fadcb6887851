"""Light words: said in conversations about anything, so that sharing one says less than its rarity makes believe."""

from collections.abc import Collection
from functools import cache

from afterturn.base.terms import terms, words

_LIGHT_WORDS = """
able absolutely actually afraid agree ahead almost already alright always amaze amazing another anybody anymore anyone
anything anytime anyway apologise apologize apology apparently appreciate around ask asked asking asks away awesome
awful back bad basically become begin believe best bet better big bit bless brilliant bring brought bye call came
carry certainly chance check cheer cheers clear come comes coming completely confirm congrats congratulations continue
cool correct correctly course crazy curious currently cute damn day dear definitely delighted different done double
easy either else enjoy enough especially even ever every everybody everyone everything exactly excellent excited
exciting excuse fabulous fact fair fantastic far feel feeling feels felt finally find fine first found fun funny gave
get gets getting give given gives giving glad go goes going gone gonna good goodness gorgeous gosh got gotcha gotta
grateful great guess guy guys haha happen happened happening happens happy hard hear heard hello help helped helpful
helping helps hey hi hmm hold honestly hope hoping idea imagine important incredible indeed instead interested
interesting keep keeping kept kind kinda kindly kinds knew know knowing known knows kudos last late later least leave
left less letting like liked likely little lol long longer look looked looking looks lot lots lovely luck lucky made
main make makes making many matter matters may maybe mean means meant might mind minute minutes moment much must near
need needed needs never nevermind new next nice nope noted nothing obvious obviously oh ok okay old one ones ooh oops
pardon particular particularly perfect perfectly perhaps pleasure possible possibly pretty probably proceed put
question questions quick quickly quite rather ready real really recently repeat right said saw say saying says second
see seeing seem seemed seems seen sense serious seriously set several short shortly show showed shows silly simple
simply since small someone something sometimes somewhere soon sorry sort sound sounds specific specifically start
started starting stay still stop stuff suggest super suppose supposed sure surely surprised take taken takes taking
talk talked talking tell telling tells terrible thank thankful thanks thing things think thinking thinks though
thought thoughts time times today together told tomorrow tonight took totally toward towards tried true truly try
trying ugh unbelievable understand understood unfortunately upon use used uses using usual usually verify via wait
waiting want wanted wanting wants way ways welcome well went whatever whether whoa whole wish wishes without wonder
wonderful wondering word words worries worry worth wow wrong yay yeah yep yes yesterday yet yikes yup
"""
# Greetings, thanks and assent elsewhere, with the small words around them. Some mean something else in English, so
# they count only where nothing else is said.
_COURTESIES = """
guten morgen abend hallo servus tschüss danke dankeschön vielen dank bitte gerne genau richtig klar alles ja nein doch
sehr schön freut mich mir dir dich ihnen ich wir sie es das ist geht gehts wie von noch auch machen nett okay
bonjour bonsoir salut merci beaucoup oui non ça va très bien parfait plaît je tu vous nous est le la les c j l n qu
hola buenos buenas días tardes noches gracias muchas por qué tal cómo estás está usted sí claro vale eso es el la
olá obrigado obrigada bom tudo bem não dia tarde noite você está
ciao buongiorno buonasera grazie prego stai sta sì perfetto va bene
hallo goedemorgen bedankt dank je wel graag gedaan ja nee gaat het jou prima
dzień dobry cześć dziękuję bardzo proszę tak nie jak się masz dobrze
merhaba teşekkürler teşekkür ederim evet tamam lütfen iyi
"""
# The same where letters stay beyond ASCII when accents are folded.
_COURTESIES_BEYOND = """
günaydın nasılsın nasılsınız hayır
привет здравствуйте доброе утро добрый день вечер спасибо большое пожалуйста как дела да нет конечно хорошо отлично
понятно ладно это очень
привіт дякую дуже будь ласка добрий ранок так ні справи
مرحبا السلام عليكم صباح الخير مساء النور كيف حالك شكرا جزيلا نعم لا من فضلك تمام حسنا جيد
नमस्ते नमस्कार आप कैसे हैं कैसी बहुत धन्यवाद शुक्रिया हाँ नहीं ठीक है अच्छा
你好 您好 早上好 晚上好 谢谢 谢谢你 非常感谢 不客气 好的 没问题 是的 对 明白了 知道了 太好了 再见 今天怎么样 你好吗
おはようございます こんにちは こんばんは ありがとうございます ありがとう どうも はい いいえ わかりました
了解しました お願いします すみません そうですね 大丈夫です 元気ですか
안녕하세요 감사합니다 고마워요 고맙습니다 네 아니요 좋아요 알겠습니다 괜찮아요 어떻게 지내세요
"""
LIGHT_TERMS = frozenset(terms(_LIGHT_WORDS))
_PLAIN_EMPTY_TERMS = LIGHT_TERMS | frozenset(terms(_COURTESIES))
_QUESTION = frozenset(
    "am are can could did do does had has have how is was were what when where which who whom whose why".split()
)
_ASKER = frozenset("i me mine my myself our ours us we".split())


def says_something(terms: Collection[str]) -> bool:
    """ "Noted.", "Sure, happy to!" do not: what is said around them would make them answers."""
    if "".join(terms).isascii():
        return not _PLAIN_EMPTY_TERMS.issuperset(terms)
    return not _empty_terms().issuperset(terms)


def is_remark(text: str, asked: Collection[str]) -> bool:
    """Of empty words alone, and no question but to the agent: "sounds good", "what do you mean?", "¿cómo estás?"."""
    # "LA" and "EST" are no courtesies.
    if says_something(asked) or (text.isascii() and text.strip().isupper()):
        return False
    said = words(text)
    is_question = said[0] in _QUESTION and not ("you" in said and _ASKER.isdisjoint(said))
    return _courtesy_terms().issuperset(asked) or not is_question


@cache
def _courtesy_terms() -> frozenset[str]:
    # When first needed: reading them takes 8 ms, and a program's first question is seldom a courtesy.
    return frozenset(terms(_COURTESIES + _COURTESIES_BEYOND))


@cache
def _empty_terms() -> frozenset[str]:
    return LIGHT_TERMS | _courtesy_terms()
