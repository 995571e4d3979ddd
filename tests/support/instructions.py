"""One example per known instruction: arguments, and a response that meets it and says something."""

PROMPT = "Write a short note about the sea and tell me what you like best when you walk there in winter."
PLAIN = "The cold wind moves over grey water while two children look for shells near the old pier."
SPANISH = "El viento frío pasa sobre el agua gris mientras los niños buscan conchas cerca del muelle."

EXAMPLES = {
    "keywords:existence": ({"keywords": ["pier", "wind"]}, PLAIN),
    "keywords:frequency": ({"keyword": "wind", "frequency": 2, "relation": "less than"}, PLAIN),
    "keywords:forbidden_words": ({"forbidden_words": ["sand"]}, PLAIN),
    "keywords:letter_frequency": (
        {"letter": "w", "let_frequency": 3, "let_relation": "at least"},
        PLAIN,
    ),
    "language:response_language": ({"language": "es"}, SPANISH),
    "length_constraints:number_sentences": ({"num_sentences": 2, "relation": "less than"}, PLAIN),
    "length_constraints:number_paragraphs": ({"num_paragraphs": 2}, f"{PLAIN}\n***\n{PLAIN}"),
    "length_constraints:number_words": ({"num_words": 30, "relation": "less than"}, PLAIN),
    "length_constraints:nth_paragraph_first_word": (
        {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "tide"},
        f"{PLAIN}\n\nTide and time wait for nobody.",
    ),
    "detectable_content:number_placeholders": (
        {"num_placeholders": 2},
        "Dear [name], the cold wind moves over the water at [place].",
    ),
    "detectable_content:postscript": ({"postscript_marker": "P.S."}, f"{PLAIN}\n\nP.S. Bring a coat."),
    "detectable_format:number_bullet_lists": (
        {"num_bullets": 2},
        "What I like there:\n* cold wind over water\n* old wooden piers",
    ),
    "detectable_format:constrained_response": ({}, "My answer is yes."),
    "detectable_format:number_highlighted_sections": (
        {"num_highlights": 2},
        "The *cold wind* moves over **grey water** all day long.",
    ),
    "detectable_format:multiple_sections": (
        {"section_spliter": "Section", "num_sections": 2},
        "Section 1\nCold wind over grey water.\nSection 2\nChildren look for shells.",
    ),
    "detectable_format:json_format": ({}, '{"wind": "cold and strong", "water": "grey", "pier": 1}'),
    "detectable_format:title": ({}, f"<<Winter>>\n{PLAIN}"),
    "combination:two_responses": ({}, f"{PLAIN}\n******\nThe wind is what I like best."),
    "combination:repeat_prompt": ({"prompt_to_repeat": PROMPT}, f"{PROMPT}\n\n{PLAIN}"),
    "startend:end_checker": ({"end_phrase": "That is all."}, f"{PLAIN} That is all."),
    "startend:quotation": ({}, f'"{PLAIN}"'),
    "change_case:capital_word_frequency": (
        {"capital_frequency": 2, "capital_relation": "at least"},
        "The COLD wind moves over GREY water near the pier.",
    ),
    "change_case:english_capital": ({}, PLAIN.upper()),
    "change_case:english_lowercase": ({}, PLAIN.lower()),
    "punctuation:no_comma": ({}, PLAIN),
    "keywords:word_count_different_numbers": (
        {"keyword": "wind", "frequency": 1, "relation": "at least"},
        PLAIN,
    ),
    "keywords:word_once": ({"keyword": "pier"}, PLAIN),
    "keywords:exclude_word_harder": ({"keyword": "sand"}, PLAIN),
    "keywords:no_adjacent_consecutive": ({}, "Grey water moves over cold stone."),
    "keywords:palindrome": ({}, "At noon the cold wind moves over the water."),
    "keywords:keyword_specific_position": ({"keyword": "wind", "n": 1, "m": 3}, PLAIN),
    "keywords:start_end": ({}, "Water moves under the wind and the wind moves the water"),
    "letters:letter_counting": ({"N": 40, "relation": "at least"}, PLAIN),
    "letters:letter_counting2": ({"letter": "z", "let_frequency": 1, "let_relation": "less than"}, PLAIN),
    "paragraphs:paragraphs": ({}, f"{PLAIN}\n***\n{PLAIN}"),
    "paragraphs:paragraphs2": ({}, f"{PLAIN}\n\n{PLAIN}"),
    "first_word:first_word_answer": ({"first_word": "the"}, PLAIN),
    "first_word:first_word_sent": ({"first_word": "the"}, f"{PLAIN} The rest is quiet."),
    "last_word:last_word_answer": ({"last_word": "pier"}, PLAIN),
    "last_word:last_word_sent": ({"last_word": "pier"}, f"{PLAIN} They never leave the pier!"),
    "detectable_format:square_brackets": ({}, "[Cold] [wind] [moves] [over] [water]."),
    "detectable_format:bigram_wrapping": ({}, "<<cold wind>> <<moves over>> <<grey water>>"),
    "detectable_format:sentence_hyphens": ({}, "Cold wind moves.-Grey water waits."),
    "copy:copy": ({"prompt_to_repeat": "Say hello."}, "Say hello."),
    "copy:copying_simple": ({"prompt_to_repeat": "Say hello."}, "Say hello."),
    "copy:copying_multiple": ({"prompt_to_repeat": "Say hello.", "N": 2}, "Say hello.\n******\nSay hello."),
    "copy:repeat_phrase": (
        {"phrase": "the cold wind", "small_n": 2},
        "I like the warm wind and the mild wind more than storms on grey water.",
    ),
    "new:copy_span_idx": ({"prompt_to_repeat": PROMPT, "n_start": 0, "n_end": 12}, "Write a short"),
    "punctuation:punctuation_dot": ({}, PLAIN.rstrip(".") + "!"),
    "punctuation:punctuation_exclamation": ({}, PLAIN),
    "count:lowercase_counting": ({"N": 1}, "COLD WIND MOVES OVER GREY WATER and STONE"),
    "count:counting_composition": (
        {"n_sent": 1, "n_words": 3},
        "Cold wind moves.\n* * *\nGrey water waits.\n***\nOld piers creak.",
    ),
    "count:count_unique": ({}, "Cold wind moves over grey water."),
    "count:count_increment_word": (
        {"keyword1": "pier", "keyword2": "wind"},
        PLAIN.replace("children", "children in the wind"),
    ),
    "count:word_count_range": ({"min_words": 10, "max_words": 20}, PLAIN),
    "count:unique_word_count": ({"N": 15}, PLAIN),
    "count:numbers": ({"N": 2}, "At 7.30 the wind moves over 2 old piers."),
    "count:conjunctions": ({"small_n": 2}, "The wind is cold but strong and I like it."),
    "count:keywords_multiple": (
        {"keyword1": "ink", "keyword2": "owl", "keyword3": "jar", "keyword4": "gum", "keyword5": "yak"},
        "Please take these home today: ink owl owl jar jar jar" + " gum" * 5 + " yak" * 7,
    ),
}
