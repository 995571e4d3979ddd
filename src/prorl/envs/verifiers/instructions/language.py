"""Which language a text is in: its script first, then its function words where several languages share a script.

Deterministic and small instead of complete: the thirty languages of IFEval and Chinese. "Cannot tell" is an answer
(None), given where the scripts are mixed, where hardly any function word occurs, or where two languages tie.
"""

from __future__ import annotations

import unicodedata
from collections import Counter

from prorl.envs.verifiers.instructions.text import words

MIN_SCRIPT_SHARE = 0.8  # of the letters; names and terms may stay in another script
MIN_FUNCTION_WORDS = 0.05  # of the words; running text has 15 % or more, a list of names has none
MIN_KANA_SHARE = 0.1  # of Japanese letters; Chinese has none

_RANGES = (
    ("latin", 0x0041, 0x024F),
    ("latin", 0x1E00, 0x1EFF),
    ("el", 0x0370, 0x03FF),
    ("cyrillic", 0x0400, 0x052F),
    ("he", 0x0590, 0x05FF),
    ("arabic", 0x0600, 0x077F),
    ("arabic", 0xFB50, 0xFEFC),
    ("devanagari", 0x0900, 0x097F),
    ("bn", 0x0980, 0x09FF),
    ("pa", 0x0A00, 0x0A7F),
    ("gu", 0x0A80, 0x0AFF),
    ("ta", 0x0B80, 0x0BFF),
    ("te", 0x0C00, 0x0C7F),
    ("kn", 0x0C80, 0x0CFF),
    ("ml", 0x0D00, 0x0D7F),
    ("th", 0x0E00, 0x0E7F),
    ("kana", 0x3040, 0x30FF),
    ("han", 0x3400, 0x9FFF),
    ("ko", 0x1100, 0x11FF),
    ("ko", 0xAC00, 0xD7AF),
)

_FUNCTION_WORDS = {
    "latin": {
        "en": "the of and a to in is that it for was on are as with his they be at this have from or had by not but "
        "what all were we when your can said there an each which she do how their if will up other about out "
        "many then them these so some her would him has more could my than been who its no you i he our us me "
        "don't it's i'm let's",
        "es": "el la los las de del que y en un una es por con para no su se lo como más pero sus le ya o este sí "
        "porque esta entre cuando muy sin sobre también hasta hay donde quien desde todo nos son fue ser está "
        "mi tu al nuestro nuestra ha era",
        "pt": "o a os as de do da dos das que e em um uma é por com para não seu sua se como mais mas foi ao ele "
        "ela no na nos nas à isso são muito também já eu você está até quando ser há nós pelo pela entre depois "
        "sem mesmo aos ter essa esse",
        "fr": "le la les de des du et en un une est que qui dans pour pas sur au aux avec ce cette il elle ils nous "
        "vous se sont mais ou par plus je tu ne leur ses son sa comme été être fait très même aussi c'est où "
        "notre votre d'un d'une l'on si",
        "de": "der die das und in zu den von mit sich des auf für ist im dem nicht ein eine als auch es an werden "
        "aus er hat dass sie nach wird bei einer um am sind noch wie einem über einen so zum war haben nur oder "
        "aber vor zur bis mehr durch man ich wir ihr",
        "it": "il lo la i gli le di del della dei delle che e è in un una per con non si da sono come più ma anche "
        "al alla nel nella su questo questa ha ho mi ti ci se quando molto essere suo sua dal dalla tra cosa "
        "perché o era l'arte",
        "pl": "i w na z się nie do to jest że o jak ale po co tak za od czy był być dla przez oraz jego jej są może "
        "który która które już tylko przy tym ten ta te ich lub także jako ma bardzo pod nad gdy",
        "fi": "ja on ei se että oli hän olla niin kun mutta joka myös ovat mikä tai jos kuin nyt vain siitä sen sitä "
        "ole minä sinä me te he hänen tämä tämän voi voit kanssa kuten ollut vielä jotka hyvin sekä olen kaikki "
        "mitä tätä",
        "vi": "và của là có không một trong được cho với các những này người để đã khi đến từ như về cũng ra vào lại "
        "rất sẽ bạn tôi chúng ta nhiều hơn năm thì trên phải làm nó bằng hay mà nếu tại việc",
        "sw": "na ya wa kwa ni katika za la kuwa hii cha kama si huo vya pia au lakini hiyo hizo huu yake wake kila "
        "baada watu ili sana yako ambayo mimi wewe yeye sisi hivyo kutoka ambao wao yangu hapa bila",
    },
    "cyrillic": {
        "ru": "и в не на что с он как это по но они к из у за от так же для то бы все она его только мы вы было был "
        "если или быть есть ее их когда уже о при чтобы также который которые ты я нет более может под нас вас "
        "очень этот эта эти",
        "uk": "і в не на що з він як це по але вони до із у за від так же для то би все вона його тільки ми ви було "
        "був якщо або бути є її їх коли вже про при щоб також який які ти я й та та ні більше може дуже цей ця "
        "ці",
        "bg": "и в не на че с той как това по но те към от у за така же до да се е са ли ще тя го само ние вие беше "
        "ако или има неговия когато вече при за което който която които също аз ти си ми му им един една много "
        "като през със",
    },
    "arabic": {
        "ar": "في من على إلى أن هذا هذه التي الذي عن مع كان كانت لا ما هو هي أو كل بعد قبل عند ثم قد لم لن إن كما "
        "ذلك تلك بين حتى إذا أي أنا أنت نحن هم يمكن و غير أكثر",
        "fa": "و در به از که این را با است برای آن یک تا بر هم نیز خود شما من ما می بود شد های کرد اما یا اگر باید "
        "هر چه وی پس شده کند دارد هستند نیست ها همه آنها چون بسیار",
        "ur": "کے میں کی ہے اور سے کا کو نے اس پر کہ یہ ہیں ایک بھی تو وہ نہیں ہو کر تھا تھے تھی لیے آپ ہم جو کیا "
        "گیا ہوئے ساتھ ان اپنے یا مگر لیکن بہت اگر سکتے ہوتا ہوتی",
    },
    "devanagari": {
        "hi": "के में की है और से का को ने इस पर कि यह हैं एक भी तो वह नहीं हो कर था थे थी लिए आप हम जो क्या गया "
        "साथ उन अपने या लेकिन बहुत अगर सकते होता होती मैं तक जब कुछ ये",
        "mr": "आणि आहे या ते ही हा तो ती च्या मध्ये एक नाही होते होता आहेत करण्यासाठी साठी त्या त्याच्या पण की मी "
        "तुम्ही आम्ही असे असते किंवा खूप जर तर काही केले म्हणून हे मला आपण आपल्या होती करा सर्व",
        "ne": "छ र को मा हो का लागि यो पनि गर्न भने एक छन् हुन्छ भएको गर्ने तर यस थियो उनले तपाईं म हामी वा धेरै "
        "गरेको त्यो बाट लाई संग हुन् के तपाईंको हाम्रो गर्दै नै गर्नुहोस् छैन मेरो हुने",
    },
}
_MARKERS = {
    script: {code: frozenset(word.casefold() for word in listed.split()) for code, listed in codes.items()}
    for script, codes in _FUNCTION_WORDS.items()
}
_ALONE = frozenset(name for name, _, _ in _RANGES if len(name) == 2)
LANGUAGES = _ALONE | {"ja", "zh"} | {code for codes in _MARKERS.values() for code in codes}


def detect(text: str) -> str | None:
    """The ISO 639-1 code of the language of a text, None where it cannot be told.

    >>> detect("What is the name of the river?"), detect("Wie heißt der Fluss?"), detect("Ναι"), detect("42")
    ('en', 'de', 'el', None)
    """
    text = unicodedata.normalize("NFC", text)
    scripts: Counter[str] = Counter()
    for character, count in Counter(text).items():
        if character.isalpha():
            scripts[_script(character)] += count
    total = scripts.total()
    japanese = scripts["kana"] + scripts["han"]
    if total and japanese >= MIN_SCRIPT_SHARE * total:
        return "ja" if scripts["kana"] >= MIN_KANA_SHARE * japanese else "zh"
    if not total or scripts.most_common(1)[0][1] < MIN_SCRIPT_SHARE * total:
        return None
    script = scripts.most_common(1)[0][0]
    return script if script in _ALONE else _by_function_words(text, _MARKERS.get(script, {}))


def _script(character: str) -> str:
    point = ord(character)
    return next((name for name, first, last in _RANGES if first <= point <= last), "other")


def _by_function_words(text: str, markers: dict[str, frozenset[str]]) -> str | None:
    found = Counter(words(text))
    hits = sorted((sum(found[word] for word in listed), code) for code, listed in markers.items())
    if not hits or hits[-1][0] < max(1.0, MIN_FUNCTION_WORDS * found.total()):
        return None
    tied = len(hits) > 1 and hits[-1][0] == hits[-2][0]
    return None if tied else hits[-1][1]
