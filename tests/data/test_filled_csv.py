"""A filled table has the bytes of the one that was read, but for its gaps."""

import numpy as np
import pytest

from discrete_vae.data.tables import filled_csv, read_csv
from discrete_vae.errors import InvalidInputError

TABLES = {
    "commas": "a,b,c\n1,,3.50\nna, 2 ,\n",
    "no last line end": "a,b,c\n1,,3.50\nna, 2 ,",
    "quotes": 'a,"b",c\r\n"1","",3\r\n"NaN",2,null\r\n',
    "semicolons and a mark": "\ufeffa;b;c\n1;;3\n;2;\n",
    "tabs and blank lines": "a\tb\tc\n\n1\t\t3\n\n\nnone\t2\t\n\n",
    "old line ends": "a,b,c\r1,,3\r,2,\r",
}
GAPS = np.array([[False, True, False], [True, False, True]])


@pytest.mark.parametrize("name", TABLES)
def test_only_gaps_change(name, tmp_path):
    path = tmp_path / "x.csv"
    path.write_bytes(TABLES[name].encode())
    table = read_csv(path)
    assert (np.isnan(table.values) == GAPS).all()
    words = np.array([["", "0.25", ""], ["7", "", "8"]], dtype=object)
    filled = filled_csv(path, table.columns, GAPS, words)
    again = tmp_path / "y.csv"
    again.write_bytes(filled.encode())
    assert (read_csv(again).values == [[1, 0.25, table.values[0, 2]], [7, 2, 8]]).all()
    assert filled_csv(path, table.columns, np.zeros_like(GAPS), words).encode() == path.read_bytes()
    for new in ("0.25", "7", "8"):
        assert new in filled
        filled = filled.replace(new, "", 1)
    gone = TABLES[name]
    for word in ("na,", '"NaN"', "null", "none", '"",'):
        gone = gone.replace(word, word[len(word.rstrip(",")) :])
    assert filled == gone


def test_columns_in_another_order_and_labels(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text('kind,b,a\n"one, two",,1\nx,2,\n')
    gaps, words = np.array([[False, True], [True, False]]), np.array([["", "5"], ["6", ""]])
    assert filled_csv(path, ["a", "b"], gaps, words) == 'kind,b,a\n"one, two",5,1\nx,2,6\n'


def test_a_file_that_has_changed_is_refused(tmp_path):
    path = tmp_path / "x.csv"
    gaps, words = np.zeros((2, 2), bool), np.full((2, 2), "")
    for text in ("a,c\n1,2\n3,4\n", "a,b\n1,2\n", "a,b\n1,2\n3,4\n5,6\n", "a,b\n1,2,3\n4,5,6\n", ""):
        path.write_text(text)
        with pytest.raises(InvalidInputError, match="must be as it was when it was read"):
            filled_csv(path, ["a", "b"], gaps, words)
