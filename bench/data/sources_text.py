"""SST-2 and the texts that are none of its kind: where they come from."""

from __future__ import annotations

from bench.data.sources import DataSet, Part

TEXTS = (
    DataSet(
        name="sst2",
        title="SST-2 as GLUE has it: 67,349 training phrases and 872 sentences, two sentiments",
        place="SST-2",
        licence="none stated",
        cite="Socher et al., 2013; Wang et al., 2019",
        home="https://gluebenchmark.com/tasks",
        parts=(
            Part(
                url="https://dl.fbaipublicfiles.com/glue/data/SST-2.zip",
                file="SST-2.zip",
                size=7_439_277,
                md5="9f81648d4199384278b86e315dac217c",
                gives=("SST-2",),
                proof=("SST-2/train.tsv", "SST-2/dev.tsv"),
            ),
        ),
    ),
    DataSet(
        name="ag_news",
        title="AG News, test part: 7,600 news texts of 4 topics",
        place="ag_news",
        licence="non-commercial use",
        cite="Zhang et al., 2015",
        home="http://groups.di.unipi.it/~gulli/AG_corpus_of_news_articles.html",
        parts=(
            Part(
                url="https://raw.githubusercontent.com/mhjabreel/CharCnn_Keras/master/data/"
                "ag_news_csv/test.csv",
                file="ag_news/test.csv",
                size=1_857_427,
                md5="d52ea96a97a2d943681189a97654912d",
                sha256="521465c2428ed7f02f8d6db6ffdd4b5447c1c701962353eb2c40d548c3c85699",
            ),
        ),
    ),
    DataSet(
        name="trec",
        title="TREC: 5,452 training and 500 test questions of 6 kinds",
        place="trec",
        licence="none stated",
        cite="Li and Roth, 2002",
        home="https://cogcomp.seas.upenn.edu/Data/QA/QC/",
        parts=(
            Part(
                url="https://cogcomp.seas.upenn.edu/Data/QA/QC/train_5500.label",
                file="trec/train_5500.label",
                size=335_858,
                md5="073462e3fcefaae31e00edb1f18d2d02",
                sha256="9e4c8bdcaffb96ed61041bd64b564183d52793a8e91d84fc3a8646885f466ec3",
            ),
            Part(
                url="https://cogcomp.seas.upenn.edu/Data/QA/QC/TREC_10.label",
                file="trec/TREC_10.label",
                size=23_354,
                md5="323a3554401d86e650717e2d2f942589",
                sha256="033f22c028c2bbba9ca682f68ffe204dc1aa6e1cf35dd6207f2d4ca67f0d0e8e",
            ),
        ),
    ),
)
"""For the task `sst2`."""
