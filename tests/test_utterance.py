"""What kind of thing was said, in many languages. The sentences are not among those that the weights are trained on."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterturn.utterance import (
    END_CHARS,
    FEATURES,
    START_CHARS,
    WEIGHTS_PATH,
    UtteranceKind,
    read_question,
    read_utterance,
)

KINDS = {
    UtteranceKind.STATEMENT: [
        "my brother keeps bees on the roof",
        "The staging server runs on port 8443.",
        "we have a tortoise called Speedy",
        "Noted: pottery class on Wednesdays at 7.",
        "meine schwester wohnt in freiburg und hat zwei katzen",
        "Unser Vermieter heißt Herr Lindner.",
        "mon mari travaille de nuit à l'usine",
        "mi abuela vive en Sevilla con mi tío",
        "mio padre è in pensione da un anno",
        "meu irmão mora em Lisboa",
        "mijn broer woont in Rotterdam",
        "мой брат живёт в Томске",
        "أخي يسكن في الإسكندرية",
        "弟は札幌に住んでいます",
        "我弟弟住在广州",
        "제 남동생은 인천에 살아요",
    ],
    UtteranceKind.QUESTION: [
        "what is my brother's phone number",
        "does the cat like fish?",
        "and where was that again",
        "wie heißt mein vermieter",
        "Welchen Port hat der Server?",
        "où habite ma grand-mère ?",
        "c'est quoi le nom de mon mari",
        "¿dónde vive mi abuela?",
        "dove abita mio padre?",
        "onde mora o meu irmão",
        "waar woont mijn broer",
        "где живёт мой брат?",
        "أين يسكن أخي؟",
        "弟はどこに住んでいますか",
        "我弟弟住在哪里",
        "남동생은 어디에 살아?",
    ],
    UtteranceKind.ORDER: [
        "send the invoice to Marta please",
        "add a retry to the upload function",
        "now remove the second paragraph",
        "schick mir bitte die rechnung",
        "schreib dem vermieter wegen der heizung",
        "envoie la facture à Marta stp",
        "manda la factura a Marta por favor",
        "prenota un tavolo per due",
        "envie a fatura para a Marta por favor",
        "stuur de factuur naar Marta alsjeblieft",
        "отправь счёт Марте пожалуйста",
        "أرسل الفاتورة إلى مارتا من فضلك",
        "請求書を送ってください",
        "帮我把发票发给小李",
        "청구서를 보내 주세요",
    ],
    UtteranceKind.SOCIAL: [
        "thank you so much!",
        "ok great",
        "haha nice",
        "good night",
        "👍",
        "danke dir",
        "guten morgen",
        "merci bien",
        "hola buenas",
        "grazie",
        "obrigado!",
        "dank je",
        "спасибо большое",
        "شكرا",
        "ありがとうございます",
        "好的谢谢",
        "감사해요",
        "",
    ],
    UtteranceKind.SUPPOSITION: [
        "if I were rich I'd buy an island",
        "maybe I'll learn the harp some day, who knows",
        "wenn ich zeit hätte würde ich segeln lernen",
        "si j'étais riche j'achèterais une île",
        "если бы я был богат, я бы купил остров",
        "لو كنت غنيا لاشتريت جزيرة",
        "要是我有钱就买个岛",
    ],
}


@pytest.mark.parametrize("kind, text", [(kind, text) for kind, texts in KINDS.items() for text in texts])
def test_the_kind_of_a_message_is_recognized(kind: UtteranceKind, text: str):
    """L11: questions, orders, courtesies and suppositions are told from statements, in every script."""
    assert read_utterance(text).kind is kind, read_utterance(text)


@pytest.mark.parametrize(
    "text",
    [
        "the dog is called Rufus btw. what's the number of the vet",
        "wir ziehen im mai nach bremen. was kostet ein umzugswagen?",
        "ma sœur arrive samedi. tu as une idée de dessert ?",
        "私は土曜に休みです。どこに行こうか？",
        "I bought a kayak in March, can you help me find a rack for it?",
        "ich habe am dienstag prüfung, hast du einen tipp?",
    ],
)
def test_a_message_can_state_and_ask(text: str):
    read = read_utterance(text)
    assert read.states > 0.5
    assert read.asks > 0.5


@pytest.mark.parametrize(
    "changed, same",
    [
        ("we moved to Oslo in May", "we live in Oslo"),
        ("the dentist is on friday instead", "the dentist is on friday"),
        ("the trip is cancelled", "the trip is long"),
        ("wir wohnen nicht mehr in Bonn", "wir wohnen in Bonn"),
        ("maintenant j'habite à Brest", "j'habite à Brest"),
        ("ya no trabajo en el banco", "trabajo en el banco"),
        ("adesso lavoro a Parma", "lavoro a Parma"),
        ("agora moro em Braga", "moro em Braga"),
        ("we wonen niet meer in Breda", "we wonen in Breda"),
        ("теперь я живу в Омске", "я живу в Омске"),
        ("انتقلنا إلى تونس", "نسكن في تونس"),
        ("会議は水曜に変更になりました", "会議は水曜です"),
        ("会议改到周三", "会议在周三"),
        ("회의가 수요일로 변경됐어요", "회의는 수요일이에요"),
    ],
)
def test_words_of_change_raise_its_chance(changed: str, same: str):
    """L11: a statement that says that something is different now can be told from one that does not."""
    assert read_utterance(changed).changes > 2 * read_utterance(same).changes


@pytest.mark.parametrize(
    "text",
    [
        "keep the summaries brief please",
        "never email me on sundays",
        "antworte bitte immer kurz",
        "réponds toujours par écrit",
        "escríbeme siempre por la tarde",
        "всегда пиши мне вечером",
        "いつも夜に連絡してください",
        "以后都用邮件联系我",
    ],
)
def test_an_instruction_that_stays_is_also_a_statement(text: str):
    assert read_utterance(text).states > 0.3 > read_utterance("send the invoice to Marta please").states


def test_an_offer_is_a_question_and_a_supposition():
    read = read_utterance("Shall I write a reminder for you?")
    assert read.asks > 0.9
    assert read.supposes > 5 * read_utterance("When did I write a reminder?").supposes
    assert read.states < 0.2


def test_general_knowledge_states_less_than_a_fact_about_the_user():
    general = read_utterance("Whales are mammals and breathe air.")
    assert 0.2 < general.states < read_utterance("I work on a whale-watching boat in Tromsø.").states


@pytest.mark.parametrize(
    "text",
    [
        "what does NASA stand for",
        "what's the difference between a moth and a butterfly?",
        "write a limerick about a goose",
        "was heißt Handschuh auf Englisch?",
        "combien de secondes dans une heure ?",
        "¿cómo se escribe zanahoria?",
        "сколько будет 12 умножить на 8",
        "「傘」は英語で何と言う？",
        "“雨伞”是什么意思？",
    ],
)
def test_a_question_that_no_memory_helps_with_is_general(text: str):
    """L13: definitions, translations, sums and verses are asked of anybody."""
    assert read_question(text).is_general


@pytest.mark.parametrize(
    "text",
    [
        "where do I live?",
        "what does my badge stand for?",
        "when is the standup?",
        "wann kommt der Klempner?",
        "上司は誰？",
    ],
)
def test_a_question_about_the_user_is_not_general(text: str):
    assert not read_question(text).is_general


def test_capitals_and_accents_do_not_matter():
    assert read_utterance("Écris à mon médecin") == read_utterance("ecris a mon medecin")


def test_a_full_stop_in_a_number_or_title_ends_no_sentence():
    assert read_utterance("dr. roth comes on the 5. of may at 3.20") == read_utterance(
        "dr roth comes on the 5 of may at 3,20"
    )


def test_a_long_text_is_read_at_its_beginning_and_end_only():
    start, end = "I grow tomatoes. " * 200, "\nwhere is the shed key?"
    middle = "why is the sky blue? " * 100
    assert len(start) > START_CHARS
    assert len(end) < END_CHARS
    filler = "Tomatoes need water. " * 40
    with_middle = read_utterance(start + middle + filler + end)
    assert with_middle == read_utterance(start + filler + end)
    assert with_middle.asks > 0.9
    assert read_utterance(start + middle + filler).asks < 0.5


@given(st.text(max_size=300))
def test_every_chance_is_between_0_and_1(text: str):
    read = read_utterance(text)
    assert all(0.0 <= chance <= 1.0 for chance in read)
    assert read_utterance(text) == read


def test_every_weight_belongs_to_a_feature():
    stored = json.loads(WEIGHTS_PATH.read_text(encoding="utf-8"))
    assert set(stored) <= set(FEATURES)
    assert {len(row) for row in stored.values()} == {6}
