"""Languages are told apart by script and function words, or not at all; never by chance."""

import pytest

from prorl.envs.verifiers.instruction_checks import LANGUAGES, detect

SENTENCES = {
    "en": "The children went down to the harbour because they wanted to see the ships.",
    "es": "Los niños bajaron al puerto porque querían ver los barcos antes de la noche.",
    "pt": "As crianças foram até o porto porque queriam ver os navios antes de anoitecer.",
    "fr": "Les enfants sont allés au port parce qu'ils voulaient voir les bateaux avant la nuit.",
    "de": "Die Kinder gingen zum Hafen, weil sie vor der Nacht noch die Schiffe sehen wollten.",
    "it": "I bambini sono andati al porto perché volevano vedere le navi prima della notte.",
    "pl": "Dzieci poszły do portu, bo chciały zobaczyć statki przed nocą i nie było daleko.",
    "fi": "Lapset menivät satamaan, koska he halusivat nähdä laivat ennen yötä ja se oli hauskaa.",
    "vi": "Những đứa trẻ đi xuống bến cảng vì chúng muốn xem các con tàu trước khi trời tối.",
    "sw": "Watoto walienda bandarini kwa sababu walitaka kuona meli kabla ya usiku na giza.",
    "ru": "Дети пошли в порт, потому что они хотели увидеть корабли до наступления ночи.",
    "uk": "Діти пішли до порту, тому що вони хотіли побачити кораблі до настання ночі.",
    "bg": "Децата отидоха на пристанището, защото искаха да видят корабите преди да се стъмни.",
    "ar": "ذهب الأطفال إلى الميناء لأنهم أرادوا رؤية السفن قبل أن يحل الليل في المدينة.",
    "fa": "بچه‌ها به بندر رفتند چون می‌خواستند کشتی‌ها را پیش از شب در دریا ببینند.",
    "ur": "بچے بندرگاہ پر گئے کیونکہ وہ رات سے پہلے جہاز دیکھنا چاہتے تھے اور یہ دور نہیں تھا۔",
    "hi": "बच्चे बंदरगाह पर गए क्योंकि वे रात से पहले जहाज़ देखना चाहते थे और यह दूर नहीं था।",
    "mr": "मुले बंदरावर गेली कारण त्यांना रात्रीपूर्वी जहाजे पाहायची होती आणि ते लांब नाही.",
    "ne": "केटाकेटीहरू बन्दरगाह गए किनभने उनीहरू रात हुनु अघि जहाज हेर्न चाहन्थे र यो टाढा छैन।",
    "he": "הילדים הלכו לנמל כי הם רצו לראות את האוניות לפני הלילה.",
    "el": "Τα παιδιά πήγαν στο λιμάνι γιατί ήθελαν να δουν τα πλοία πριν νυχτώσει.",
    "bn": "শিশুরা বন্দরে গিয়েছিল কারণ তারা রাতের আগে জাহাজ দেখতে চেয়েছিল।",
    "pa": "ਬੱਚੇ ਬੰਦਰਗਾਹ ਤੇ ਗਏ ਕਿਉਂਕਿ ਉਹ ਜਹਾਜ਼ ਦੇਖਣਾ ਚਾਹੁੰਦੇ ਸਨ।",
    "gu": "બાળકો બંદર પર ગયા કારણ કે તેઓ વહાણો જોવા માંગતા હતા.",
    "ta": "குழந்தைகள் கப்பல்களைப் பார்க்க விரும்பியதால் துறைமுகத்திற்குச் சென்றனர்.",
    "te": "పిల్లలు ఓడలను చూడాలనుకున్నందున ఓడరేవుకు వెళ్లారు.",
    "kn": "ಮಕ್ಕಳು ಹಡಗುಗಳನ್ನು ನೋಡಲು ಬಂದರಿಗೆ ಹೋದರು.",
    "ml": "കുട്ടികൾ കപ്പലുകൾ കാണാൻ തുറമുഖത്തേക്ക് പോയി.",
    "th": "เด็กๆ ไปที่ท่าเรือเพราะอยากเห็นเรือก่อนค่ำ",
    "ko": "아이들은 밤이 되기 전에 배를 보고 싶어서 항구로 갔다.",
    "ja": "子供たちは夜になる前に船を見たかったので港へ行きました。",
    "zh": "孩子们去了港口，因为他们想在天黑之前看到船。",
}


def test_there_is_a_sentence_for_every_language():
    assert SENTENCES.keys() == LANGUAGES


@pytest.mark.parametrize("code", SENTENCES)
def test_each_language_in_any_case(code):
    assert detect(SENTENCES[code]) == code
    assert detect(SENTENCES[code].upper()) == code
    assert detect(SENTENCES[code] + " NATO") == code


@pytest.mark.parametrize("text", ["", "42 + 1", "qwer asdf zxcv", "Tokyo Paris Berlin", "ᚠᚢᚦᚨᚱᚲ"])
def test_cannot_tell(text):
    assert detect(text) is None


def test_mixed_scripts_are_no_language():
    assert detect(SENTENCES["ru"] + SENTENCES["th"]) is None
    assert detect("The end. " + SENTENCES["ko"] + " And this is the rest of the story.") is None


def test_a_tie_is_no_language():
    assert detect("the le cat chat") is None
    assert detect("the le cat chat sat of") == "en"
