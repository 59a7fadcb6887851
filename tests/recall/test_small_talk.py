"""What is said to be polite recalls nothing, in any language; what is asked for does."""

import pytest
from asking import by_words, texts, with_vectors

from afterturn.recall.query import needs_recall

WAYS = pytest.mark.parametrize("ask", [by_words, with_vectors])
FACTS = {
    "en": [
        "My cat is called Miso",
        "I am allergic to peanuts",
        "The deploy script lives in tools/ship",
        "I prefer tea",
    ],
    "de": ["Meine Katze heißt Miso", "Ich bin gegen Erdnüsse allergisch", "Das Skript liegt im Ordner tools"],
    "fr": ["Mon chat s'appelle Miso", "Je suis allergique aux arachides", "Le script est dans le dossier tools"],
    "es": ["Mi gato se llama Miso", "Soy alérgica a los cacahuetes", "El script está en la carpeta tools"],
    "ru": ["Мою кошку зовут Мисо", "У меня аллергия на арахис", "Скрипт лежит в папке tools"],
    "ar": ["قطتي اسمها ميسو", "لدي حساسية من الفول السوداني"],
    "hi": ["मेरी बिल्ली का नाम मिसो है", "मुझे मूंगफली से एलर्जी है"],
    "zh": ["我的猫叫味噌", "我对花生过敏", "部署脚本在工具目录里"],
    "ja": ["私の猫の名前は味噌です", "ピーナッツアレルギーがあります", "スクリプトはtoolsにあります"],
    "ko": ["제 고양이 이름은 미소입니다", "저는 땅콩 알레르기가 있습니다"],
}
SAID = [
    *(("en", said) for said in ("How is the weather today?", "Tell me a joke, please", "ok thanks", "What is 2+2?")),
    *(("en", said) for said in ("Good morning!", "That sounds great, let's go ahead", "How are you doing?", "lol ok")),
    *(("de", said) for said in ("Guten Morgen, wie geht es dir?", "Vielen Dank!", "Ja, genau so machen wir es")),
    *(("fr", said) for said in ("Bonjour, comment ça va ?", "Merci beaucoup, c'est parfait", "Oui, d'accord")),
    *(("es", said) for said in ("¡Buenos días! ¿Qué tal?", "Muchas gracias", "Sí, claro")),
    *(("ru", said) for said in ("Доброе утро, как дела?", "Большое спасибо", "Да, конечно")),
    *(("ar", said) for said in ("صباح الخير، كيف حالك؟", "شكرا جزيلا")),
    *(("hi", said) for said in ("नमस्ते, आप कैसे हैं?", "बहुत धन्यवाद")),
    *(("zh", said) for said in ("早上好，今天怎么样？", "非常感谢", "好的，没问题")),
    *(("ja", said) for said in ("おはようございます", "ありがとうございます", "はい、わかりました")),
    *(("ko", said) for said in ("안녕하세요", "감사합니다", "네, 알겠습니다")),
]
ASKED = [
    ("en", "what's my cat called?", "My cat is called Miso"),
    ("de", "Wie heißt meine Katze?", "Meine Katze heißt Miso"),
    ("fr", "Comment s'appelle mon chat ?", "Mon chat s'appelle Miso"),
    ("es", "¿Cómo se llama mi gato?", "Mi gato se llama Miso"),
    ("ru", "Как зовут мою кошку?", "Мою кошку зовут Мисо"),
    ("ar", "ما اسم قطتي؟ قطتي اسمها", "قطتي اسمها ميسو"),
    ("hi", "मेरी बिल्ली का नाम क्या है?", "मेरी बिल्ली का नाम मिसो है"),
    ("zh", "我的猫叫什么？", "我的猫叫味噌"),
    ("ja", "私の猫の名前は何ですか？", "私の猫の名前は味噌です"),
    ("ko", "제 고양이 이름은 뭐예요?", "제 고양이 이름은 미소입니다"),
]


def in_a_turn(library, ask, said: str) -> list[str]:
    """A turn asks only for what is worth a recall; whoever searches by hand means it."""
    return texts(ask(library, said)) if needs_recall(said) else []


@WAYS
@pytest.mark.parametrize("language, said", SAID)
def test_small_talk_finds_nothing(library, ask, language, said):
    """L5: recalling nothing is a good answer."""
    library.add_all(FACTS[language])
    assert in_a_turn(library, ask, said) == []


@WAYS
@pytest.mark.parametrize("language, asked, answer", ASKED)
def test_a_question_in_the_same_language_finds_its_answer(library, ask, language, asked, answer):
    """L5: all scripts work."""
    library.add_all(FACTS[language])
    assert in_a_turn(library, ask, asked)[:1] == [answer]


@pytest.mark.parametrize("said", ["ok", "Ok, thanks!", "Vielen Dank!", "谢谢", "ありがとう", "Спасибо", "merci"])
def test_what_was_said_a_hundred_times_asks_for_nothing(said):
    """L5, R6: it means nothing, and in a turn nobody is asked."""
    assert not needs_recall(said)


@WAYS
def test_a_question_about_oneself_is_answered_whatever_its_words(library, ask):
    """L5: of light words alone, and yet what memory is for; the same words as a remark ask for nothing."""
    library.add_all(["I like things short and simple", "The train leaves at nine"])
    assert in_a_turn(library, ask, "Do I like things short or long?") == ["I like things short and simple"]
    assert in_a_turn(library, ask, "Short things are simple!") == []
